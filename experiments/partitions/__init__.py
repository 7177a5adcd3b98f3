"""How many rows of Parquet files a second are released, here and on a cluster."""
