#!/bin/sh
# A capacity planner has a day of request rates and asks: for which part of the day to plan, and what growth costs.
# Run in an empty folder; a minute or less.
set -eu

cat > shop.yaml <<'YAML'
version: 2
name: shop
fleet: [{gpu: a100-80gb, price: aws}]
performance: [parvagpu-a100]
policy: {latency_budget: half_slo, safety: 0.9}
workloads:
  - {name: search, model: bert, slo_ms: 500, rate_rps: 120}
  - {name: tags, model: resnet50, slo_ms: 100, rate_rps: 2500}
YAML

# 24 hours as a dashboard exports them: a column of times, one per workload.
awk 'BEGIN { print "Time;search;tags"
  for (hour = 0; hour < 24; hour++) {
    wave = 1 + 0.8 * sin((hour - 8) * 3.14159 / 12)
    printf "2026-08-01 %02d:00:00;%.1f;%.1f\n", hour, 120 * wave, 2500 * wave } }' | sed 's/\./,/g' > rates.csv

provision what-if shop.yaml --method greedy --demand rates.csv --quantiles 0.5,0.95,1
provision what-if shop.yaml --method greedy --vary rate=1:2:0.25 --out growth.csv
provision solve shop.yaml --method greedy --no-replay --out plan.json
provision replan shop.yaml plan.json --rate 1.4 --time-limit 10 --out next.json
