#!/usr/bin/env python3
"""Parquet files for the tests of training data, as Python programs write them.

    python scripts/train/parquet.py crates/train/tests/data

Made with pyarrow 26.0.1 (pip install pyarrow). `rows.parquet` has five row groups, dictionaries, nulls, a
struct and a list; `zstd.parquet` is compressed with ZSTD.
"""

import sys

import pyarrow as pa
import pyarrow.parquet as pq


def main(folder):
    text = ["the cat", None, "sat on the é mat", "", "𝄞", "the cat", "ran\nand\tran", None, "the end"]
    table = pa.table(
        {
            "id": list(range(len(text))),
            "text": pa.array(text, pa.large_string()),
            "meta": [{"title": f"title {i}"} for i in range(len(text))],
            "tags": pa.array([["a", "b"]] * len(text), pa.list_(pa.string())),
        }
    )
    pq.write_table(table, f"{folder}/rows.parquet", row_group_size=2, compression="snappy")
    pq.write_table(table, f"{folder}/zstd.parquet", compression="zstd")


if __name__ == "__main__":
    main(sys.argv[1])
