#!/bin/sh
# An operator of language models asks how many GPUs a chat service and an assistant need to keep time to first token and time
# per token. Neither server was measured: coefficients that somebody published stand in for one, operator times for the other.
# Run in an empty folder with provision on the path; about 60 s of a core the first time, most of them to compile kernels.
set -eu

cat > variant.yaml <<'YAML'
apiVersion: llmd.ai/v1alpha1
kind: VariantAutoscaling
spec:
  modelID: llama-8b
  modelProfile:
    accelerators:
      - acc: H100
        accCount: 1
        perfParms:
          decodeParms: {alpha: "6.958", beta: "0.042"}
          prefillParms: {gamma: "5.2", delta: "0.1"}
        maxBatchSize: 64
YAML
provision import wva variant.yaml --model llama-8b --accelerator H100 --gpu h100-80gb --kv-tokens 430000 --out llama.yaml
provision import operators --model llama-3.1-70b --gpu h100 --tp 4,8 --precision fp8 --out llama-70b.yaml

cat > chat.yaml <<'YAML'
version: 2
name: chat
fleet:
  - {gpu: h100-80gb, price_per_hour: 2.49, mig: false}
  - {gpu: 8xh100-80gb, price_per_hour: 19.92}
performance: [./llama.yaml, ./llama-70b.yaml]
workloads:
  - name: chat
    model: llama-8b
    rate_rps: 6
    tokens: {input: {mean: 512, p99: 2048}, output: {mean: 128, p99: 512}}
    slo: {ttft_ms: 1000, tpot_ms: 40, percentile: 99}
  - name: assistant
    model: llama-3.1-70b
    rate_rps: 8
    tokens: {input: {mean: 1500, p99: 6000}, output: {mean: 300, p99: 1000}}
    slo: {ttft_ms: 2000, tpot_ms: 60}
YAML
provision solve chat.yaml --out plan.json
provision verify chat.yaml plan.json
provision explain chat.yaml plan.json
provision show chat.yaml plan.json --html plan.html

# What to run: the precision of the plan stands in vLLM's arguments.
provision export chat.yaml plan.json --to vllm --out deploy
grep -r -e --quantization=fp8 deploy

# A model name that no data has is told, with what was meant.
sed 's/model: llama-8b/model: llama-8B/' chat.yaml > wrong.yaml
provision solve wrong.yaml || test $? -eq 2
