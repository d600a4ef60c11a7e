-- How many events of its program an attempt has sent, those that were dropped included.
ALTER TABLE attempt ADD COLUMN events BIGINT NOT NULL DEFAULT 0 CHECK (events >= 0);
