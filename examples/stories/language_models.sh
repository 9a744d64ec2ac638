#!/bin/sh
# An operator of language models asks how many H100s a chat service needs to keep time to first token and time per token.
# The server was not measured; coefficients that somebody published stand in. Run in an empty folder with provision on the
# path; about 40 s of a core the first time, most of them to compile kernels.
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

cat > chat.yaml <<'YAML'
version: 2
name: chat
fleet: [{gpu: h100-80gb, price: aws, mig: false}]
performance: [./llama.yaml]
workloads:
  - name: chat
    model: llama-8b
    rate_rps: 6
    tokens: {input: {mean: 512, p99: 2048}, output: {mean: 128, p99: 512}}
    slo: {ttft_ms: 1000, tpot_ms: 40, percentile: 99}
YAML
provision solve chat.yaml --out plan.json
provision verify chat.yaml plan.json
provision show chat.yaml plan.json --html plan.html
