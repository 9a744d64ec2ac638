#!/bin/sh
# A capacity planner has a day of request rates and asks: for which part of the day to plan, and what growth costs.
# Run in an empty folder with provision on the path; about 15 s of a core.
set -eu

cat > shop.yaml <<'YAML'
version: 2
name: shop
fleet: [{gpu: a100-80gb, price: aws}]
performance: [parvagpu-a100]
workloads:
  - {name: search, model: bert, slo_ms: 500, rate_rps: 240}
  - {name: tags, model: resnet50, slo_ms: 100, rate_rps: 5000}
YAML

# 24 hours as a dashboard exports them: a column of times, one per workload.
awk 'BEGIN { print "Time;search;tags"
  for (hour = 0; hour < 24; hour++) {
    wave = 1 + 0.8 * sin((hour - 8) * 3.14159 / 12)
    printf "2026-08-01 %02d:00:00;%.1f;%.1f\n", hour, 240 * wave, 5000 * wave } }' | sed 's/\./,/g' > rates.csv

provision what-if shop.yaml --demand rates.csv --quantiles 0.5,0.95,1      # median hour, all but 5 %, every hour
provision what-if shop.yaml --vary rate=1:2:0.5 --out growth.csv           # when is the next GPU due?
provision solve shop.yaml --out plan.json
provision replan shop.yaml plan.json --rate 1.4 --out next.json            # the evening's rates, few changes
