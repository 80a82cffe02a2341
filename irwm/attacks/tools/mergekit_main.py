"""mergekit in its own process: `merge_with_mergekit` starts it."""

from __future__ import annotations

from typing import Any

from irwm.attacks.tools.child import request


def main(asked: dict[str, Any]) -> None:
    from mergekit.config import MergeConfiguration
    from mergekit.merge import MergeOptions, run_merge

    config = MergeConfiguration.model_validate(asked["config"])
    run_merge(config, asked["out"], MergeOptions(cuda=False, copy_tokenizer=True, quiet=True))


if __name__ == "__main__":
    main(request())
