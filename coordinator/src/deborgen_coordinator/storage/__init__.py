"""Where rows live: the only place that knows SQL, peewee and the two databases. Values leave it, rows do not."""
