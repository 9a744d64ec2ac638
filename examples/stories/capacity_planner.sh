#!/bin/sh
# A capacity planner has a day of request rates and asks: for which part of the day to plan, what growth costs, when the next
# GPU is due, and how many GPUs to reserve.
# Run in an empty folder with provision on the path; about 25 s of a core.
set -eu

cat > shop.yaml <<'YAML'
version: 2
name: shop
fleet:
  - {gpu: a100-80gb, price_per_hour: 1.40, count: 1, committed: true}
  - {gpu: a100-80gb, price: aws}
  - {gpu: l4, price_per_hour: 0.71}
performance: [parvagpu-a100, mlperf-l4]
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
provision what-if shop.yaml --vary rate=1.03,1.19,1.43 --out year.csv      # 3 % a month: after 1, 6 and 12 months
provision what-if shop.yaml --vary rate=1:1.4:0.4 --breakpoints rate       # when is the next GPU due?
provision what-if shop.yaml --vary price.l4=0.5,1.0 --budget 5             # other prices, and a budget
provision solve shop.yaml --out plan.json
provision replan shop.yaml plan.json --rate 1.4 --out next.json            # the evening's rates, few changes

# How many to reserve: the day with each count, reserved GPUs paid for used or not.
for count in 0 1 2; do
    sed "s/count: 1, committed/count: $count, committed/" shop.yaml > reserve-$count.yaml
    echo "$count reserved"
    provision simulate-trace reserve-$count.yaml rates.csv --policies replan --time-limit 2
done
