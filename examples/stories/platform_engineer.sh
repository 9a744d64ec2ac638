#!/bin/sh
# A platform engineer has measured two models on a GPU type that does not ship, and asks how many GPUs they need.
# Run in an empty folder with provision on the path; about 10 s of a core.
set -eu

# What was measured, as a spreadsheet exports it, and the traffic of a day.
mkdir -p shop
printf 'Batch Size;Latency (ms)\n1;6,1\n2;7,0\n4;9,4\n8;14,9\n16;26,0\n' > shop/search.csv
printf 'batch,latency_ms\n1,3.2\n4,5.1\n8,8.3\n16,14.8\n32,28.1\n' > shop/tags.csv
printf 'timestamp,search,tags\n2026-08-01 09:00,260,900\n2026-08-01 12:00,410,1500\n2026-08-01 21:00,180,700\n' > shop/rates.csv

# The GPU type: begin with one that is like it. (PROVISION_GPUS: where own types stand; default ~/.config/provision/gpus.)
export PROVISION_GPUS="$PWD/gpu-types"
provision gpus --print l40s | sed -e 's/name: l40s/name: rtx6000/' -e 's/^product: .*/product: RTX 6000 Ada/' > rtx6000.yaml
provision gpus --add rtx6000.yaml

# A first instance from the tables; its price is put right.
provision init shop --gpu rtx6000 --yes
sed -i 's/price_per_hour: 1.00}.*/price_per_hour: 1.10}/' shop/instance.yaml

# The plan, its verdict, and what to run on the machines.
provision solve shop/instance.yaml --out plan.json
provision verify shop/instance.yaml plan.json
provision export shop/instance.yaml plan.json --to shell --out deploy
ls deploy
