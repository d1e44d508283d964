# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`python -m verl.model_merger merge|test`: exit code 0 only if the folder is whole, or equal to the one given."""

import argparse
import logging
import sys
from collections.abc import Sequence

from verl.errors import UnsupportedError, VerlError
from verl.model_merger.base_model_merger import MergeOptions
from verl.model_merger.fsdp_model_merger import FSDPModelMerger
from verl.utils.logging_utils import set_up_logging

logger = logging.getLogger("verl.model_merger")


def build_parser() -> argparse.ArgumentParser:
    """The command line, with verl's option names."""
    parser = argparse.ArgumentParser(prog="python -m verl.model_merger", description=__doc__)
    commands = parser.add_subparsers(dest="operation", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--backend", required=True, choices=["fsdp", "megatron"])
    shared.add_argument("--local_dir", required=True, help="folder with model_world_size_*_rank_*.pt")
    shared.add_argument(
        "--tie-word-embedding", action="store_true", help="write the embedding once, whatever config.json says"
    )
    shared.add_argument("--trust-remote-code", action="store_true", help="run code that comes with the model")
    shared.add_argument("--is-value-model", action="store_true", help="the checkpoint is a critic")
    shared.add_argument(
        "--use_cpu_initialization", action="store_true", help="accepted; shards are always merged on the CPU"
    )
    merge = commands.add_parser("merge", parents=[shared], help="write a Hugging Face folder")
    merge.add_argument("--target_dir", default="tmp", help="where to write it (default: tmp)")
    merge.add_argument(
        "--merge-adapter",
        action="store_true",
        help="fold a LoRA adapter into the weights instead of writing it beside them",
    )
    merge.add_argument("--hf_upload_path", help="repository to upload the folder to")
    merge.add_argument("--private", action="store_true", help="make that repository private")
    test = commands.add_parser("test", parents=[shared], help="compare with a Hugging Face folder")
    test.add_argument("--test_hf_dir", required=True, help="folder to compare with")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; errors go to the log with their remedy."""
    set_up_logging("model_merger")
    arguments = build_parser().parse_args(argv)
    try:
        if arguments.backend == "megatron":
            raise UnsupportedError(
                "Megatron checkpoints are not read here",
                where="--backend",
                remedy="export them with Megatron's own tools",
            )
        merger = FSDPModelMerger(MergeOptions.from_arguments(arguments))
        merger.run_merge() if arguments.operation == "merge" else merger.run_test(arguments.test_hf_dir)
    except VerlError as error:
        logger.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
