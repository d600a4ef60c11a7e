from support.postgres import postgres, postgres_url

__all__ = ["postgres", "postgres_url"]
