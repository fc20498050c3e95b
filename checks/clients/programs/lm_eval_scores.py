"""lm-eval over completions: choices, a perplexity, generated answers. Prints what each model call
gave: {task: [[arguments, responses] of each sample]}."""

from __future__ import annotations

import json
import sys
from typing import Any

import lm_eval
from lm_eval.tasks import TaskManager

url, folder, *tasks = sys.argv[1:]
given: Any = lm_eval.simple_evaluate(
    model="local-completions",
    model_args={"base_url": f"{url}/v1/completions", "model": "m", "num_concurrent": 2},
    batch_size=2,
    tasks=tasks,
    task_manager=TaskManager(include_path=folder, include_defaults=False),
    bootstrap_iters=0,
    log_samples=True,
)
found: dict[str, Any] = {}
for task, samples in given["samples"].items():
    ordered = sorted(samples, key=lambda sample: sample["doc_id"])
    found[task] = [sample["resps"] for sample in ordered]
print(json.dumps({"samples": found, "results": given["results"]}, default=str))
