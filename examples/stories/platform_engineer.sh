#!/bin/sh
# A platform engineer has measured models on three GPU types, one of which does not ship, and asks how many GPUs they need,
# why, what to run, and what to do when traffic grows or a GPU fails.
# Run in an empty folder with provision on the path; about 30 s of a core.
set -eu

# What was measured: a directory of Triton's perf_analyzer, a table in microseconds, spreadsheets in seconds.
mkdir -p a100 shop
for model in 'search 8.2' 'tags 2.6'; do
    set -- $model
    for profile in '1g.10gb 7' '2g.20gb 3.5' '7g.80gb 1'; do
        slice=${profile% *} slower=${profile#* }
        for batch in 1 4 16; do
            awk -v b=$batch -v k="$2" -v s=$slower 'BEGIN { us = 1000 * k * (0.6 + 0.16 * b * s)
                print "Concurrency,Inferences/Second,p50 latency,p99 latency"
                printf "1,%.2f,%d,%d\n", 1e6 * b / us, us, 1.02 * us }' > a100/$1_${slice}_b${batch}_p1.csv
        done
    done
done
printf 'model,batch,latency_us,throughput_rps\nsearch,1,5100,196\nsearch,8,9900,808\nsearch,16,16400,976\n' > l4.csv
printf 'tags,1,2900,345\ntags,8,5300,1509\ntags,32,16100,1988\n' >> l4.csv
printf 'Batch Size;Latency (s)\n1;0,0061\n2;0,0070\n4;0,0094\n8;0,0149\n16;0,0260\n' > shop/search.csv
printf 'batch,latency_ms\n1,3.2\n4,5.1\n8,8.3\n16,14.8\n32,28.1\n' > shop/tags.csv
printf 'timestamp,search,tags\n2026-08-01 09:00,260,900\n2026-08-01 12:00,410,1500\n2026-08-01 21:00,180,700\n' > shop/rates.csv

# The GPU type: begin with one that is like it. (PROVISION_GPUS: where own types stand; default ~/.config/provision/gpus.)
export PROVISION_GPUS="$PWD/gpu-types"
provision gpus --print l40s | sed -e 's/name: l40s/name: rtx6000/' -e 's/^product: .*/product: RTX 6000 Ada/' > rtx6000.yaml
provision gpus --add rtx6000.yaml

# A first instance from the tables of this type; the other types join it, and prices are put right.
provision init shop --gpu rtx6000 --yes
provision import perf-analyzer a100 --gpu a100-80gb --out shop/a100.yaml
provision import csv l4.csv --gpu l4 --out shop/l4.yaml
sed -i -e 's/price_per_hour: 1.00}.*/price_per_hour: 1.10}\n  - {gpu: a100-80gb, price_per_hour: 1.40}\n  - {gpu: l4, price_per_hour: 0.60}/' \
    -e 's/measured.yaml\]/measured.yaml, .\/a100.yaml, .\/l4.yaml]/' shop/instance.yaml

# The plan, its verdict, why it is so, and what to run on the machines.
provision solve shop/instance.yaml --out plan.json
provision verify shop/instance.yaml plan.json
provision explain shop/instance.yaml plan.json
provision export shop/instance.yaml plan.json --to shell --out deploy
ls deploy

# A cluster whose device plugin has no MPS on MIG devices: one process on each slice.
sed 's/gpu: a100-80gb,/gpu: a100-80gb, mps: false,/; /gpu: l4,/d; /gpu: rtx6000,/d' shop/instance.yaml > shop/plugin.yaml
provision solve shop/plugin.yaml --out plugin.json
provision export shop/plugin.yaml plugin.json --to kubernetes-device-plugin --out cluster

# Traffic grows by 40 %: the old plan no longer holds (exit code 1), and the next one says which GPU is touched.
sed 's/rate_rps: 410/rate_rps: 574/; s/rate_rps: 1500/rate_rps: 2100/' shop/instance.yaml > shop/next.yaml
provision verify shop/next.yaml plan.json || test $? -eq 1
provision replan shop/next.yaml plan.json --out next.json
provision explain shop/next.yaml next.json --before plan.json --markdown > comment.md

# A GPU fails.
provision replan shop/instance.yaml plan.json --lost 0
