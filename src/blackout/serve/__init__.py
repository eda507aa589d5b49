"""A page and an HTTP API over models: ``blackout serve``. The only place that imports Starlette."""
