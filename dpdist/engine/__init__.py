"""From rows to releases: shards and workers, queries and the coordinator. Nothing else imports Dask."""
