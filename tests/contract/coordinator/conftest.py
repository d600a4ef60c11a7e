from support.pool import database, make_pool, pool
from support.postgres import own_postgres, postgres, postgres_url

__all__ = ["database", "make_pool", "own_postgres", "pool", "postgres", "postgres_url"]
