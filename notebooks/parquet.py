# %% [markdown]
# # A folder of Parquet
#
# Half a million rows in eight files: plan, select a part by id, check it in DuckDB, and add up with weights. The same
# calls read a folder that is larger than memory.

# %%
import tempfile
from pathlib import Path

import duckdb
import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
from pyarrow import dataset, parquet

import obrs

home = Path(tempfile.mkdtemp())
(home / "scores").mkdir()
for part, ids in enumerate(np.split(np.arange(500_000), 8)):
    source = np.array(["web", "web", "books"])[ids % 3]
    columns = {"id": ids, "logit": obrs.normals(ids, 1, seed=0)[:, 0], "source": source, "tokens": 20 + ids % 80}
    parquet.write_table(pa.table(columns), home / f"scores/part-{part}.parquet")

# %%
plan = obrs.files.plan(home / "scores", [2, 4, 8], kind="logit", column="logit")
plan

# %% [markdown]
# Keep exactly 100 000 rows. Every input file has a file of its name in the output, with all columns.

# %%
scores = {"id": "id", "kind": "logit", "column": "logit"}
done = obrs.files.select(home / "scores", 100_000, **scores, weights=True, out=home / "kept")
done

# %%
kept = dataset.dataset(home / "kept").to_table().to_pandas()
everything = dataset.dataset(home / "scores").to_table().to_pandas()
plt.figure(figsize=(6, 3))
plt.hist(everything.logit, 80, alpha=0.4, label="all rows")
plt.hist(kept.logit, 80, alpha=0.7, label="kept")
plt.xlabel("logit")
plt.legend()
plt.show()

# %% [markdown]
# The same rows by SQL, without this library:

# %%
condition = obrs.sql.condition(done)
rows = duckdb.sql(f"SELECT id FROM '{home}/scores/*.parquet' WHERE {condition}").fetchnumpy()["id"]
set(rows) == set(kept.id)

# %% [markdown]
# Sums over the kept rows with their weights estimate sums of r over all rows, without bias:

# %%
r, weight = np.exp(everything.logit), np.exp(kept.log_weight)
for name in ("web", "books"):
    whole, part = r[everything.source == name].sum(), weight[kept.source == name].sum()
    print(f"{name:6} all rows {whole:9.0f}   kept, weighted {part:9.0f}")

# %% [markdown]
# Ten thousand rows of each source, or a million tokens:

# %%
each = obrs.files.select(home / "scores", 10_000, **scores, group="source", out=home / "each")
tokens = obrs.files.select(home / "scores", 10**6, **scores, cost="tokens", out=home / "tokens")
each, tokens
