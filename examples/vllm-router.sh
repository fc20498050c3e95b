#!/bin/sh
# Two workers behind vLLM's router (vllm-router 0.1.17); further options go behind the command.
#
#     worker serve --port 8081 --threads 1 &
#     worker serve --port 8082 --threads 1 &
#     sh examples/vllm-router.sh --port 8000
#     curl http://127.0.0.1:8000/v1/completions -H "content-type: application/json" \
#         -d '{"model": "demo-5m-f16", "prompt": "Once upon a time"}'
#
# A request goes to the less busy worker, and what one had not begun to answer when it died goes to
# the other. Each worker's /health is asked once a second, and after failures it is left alone for two
# (--cb-timeout-duration-secs, a minute by default): back on its port, it soon gets work again.
# With `--policy cache_aware` prompts that begin alike go to the same worker, which then computes
# their beginning once.
exec vllm-router \
    --worker-urls http://127.0.0.1:8081 http://127.0.0.1:8082 \
    --policy power_of_two \
    --health-check-interval-secs 1 \
    --health-check-timeout-secs 2 \
    --health-failure-threshold 2 \
    --health-success-threshold 1 \
    --cb-timeout-duration-secs 2 \
    --worker-startup-check-interval 1 \
    --log-level warning \
    "$@"
