"""``provision fit-layers``: what measured layer times say of a machine, beside what a roofline predicts."""

from provision.commands.common import add_force, add_json, print_json, print_table
from provision.instances.files import check_writable, write_text
from provision.instances.layer_times import read_layer_times
from provision.models.fit_layers import by_network, compared, fit_roofline
from provision.models.layer_slowdowns import by_level, fit_proxy
from provision.sweeps.table import as_csv


def add_parsers(verbs):
    """Declare the verb."""
    text = "measured layer times beside a roofline fitted to them, and how a load in the background slows layers"
    parser = verbs.add_parser("fit-layers", help=text, description=text)
    parser.add_argument("times", metavar="F", help="a file of profile-layers, or a shipped name")
    parser.add_argument("--out", metavar="F", help="write measured and predicted times of all layers here (.csv)")
    add_force(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options):
    if options.out:
        check_writable(options.out, options.force)
    times = read_layer_times(options.times)
    roofline, proxy = fit_roofline(times), fit_proxy(times)
    layers = compared(times, roofline)
    if options.out:
        write_text(options.out, as_csv(layers), options.force)
    if options.json:
        print_json({
            "machine": times.machine.model_dump(), "roofline": roofline._asdict(), "networks": by_network(layers),
            "layers": layers, "levels": by_level(times), "proxy": proxy and proxy._asdict(), "file": options.out,
        })
        return 0
    print_fit(times)
    if options.out:
        print(f"written to {options.out}")
    return 0


def print_fit(times):
    """Print what LayerTimes say of their machine."""
    machine, roofline, proxy = times.machine, fit_roofline(times), fit_proxy(times)
    totals, levels = by_network(compared(times, roofline)), by_level(times)
    print(f"measured on {machine.cpu}, {machine.cores} cores, L3 {machine.l3_mib or '?'} MiB, PyTorch {machine.torch}")
    print(f"a core reaches {roofline.core_flops / 1e9:.4g} GFLOP/s and {roofline.core_bps / 1e9:.4g} GB/s, "
          f"a layer starts in {roofline.start_s * 1e6:.3g} us")
    print("\nVersions fastest alone, beside the roofline")
    print_table(list(totals[0]), [list(row.values()) for row in totals])
    print("\nBeside a load that streams memory")
    print_table(list(levels[0]), [[*list(row.values())[:-1], _counts(row["fastest"])] for row in levels])
    if proxy:
        print("proxy (known load instead of hardware counters): slowdown = 1 + B ({:.3g} + {:.3g} a), B and a in GB/s; "
              "R2 {:.2f} on rows left out".format(*proxy.weights, proxy.r_squared))


def _counts(fastest):
    """Versions with the number of layers that each runs fastest."""
    return ", ".join(f"{version} {count}" for version, count in fastest.items())
