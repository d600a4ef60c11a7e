-- One row for each process that writes to PostgreSQL, with the number of its last commit. SQLite needs none.
CREATE TABLE writer (
    id TEXT PRIMARY KEY,
    commits BIGINT NOT NULL
);
