from support.pool import database, make_pool, pool
from support.postgres import postgres, postgres_url

__all__ = ["database", "make_pool", "pool", "postgres", "postgres_url"]
