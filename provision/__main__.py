"""The entry point of ``python -m provision``."""

import sys

from provision.cli import main

sys.exit(main())
