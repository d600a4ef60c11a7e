-- A worker says more states than before, until when, and how its machine is doing. SQLite cannot change the CHECK of a
-- column, so the column is made anew. Its values wait in another one meanwhile.
ALTER TABLE worker ADD COLUMN state_before TEXT NOT NULL DEFAULT 'open';
UPDATE worker SET state_before = state;
ALTER TABLE worker DROP COLUMN state;
ALTER TABLE worker ADD COLUMN state TEXT NOT NULL DEFAULT 'open'
        CHECK (state IN ('open', 'limited', 'yielding', 'paused', 'closed', 'asleep', 'draining', 'left'));
UPDATE worker SET state = state_before;
ALTER TABLE worker DROP COLUMN state_before;
ALTER TABLE worker ADD COLUMN until_at {double};
ALTER TABLE worker ADD COLUMN metrics TEXT;
