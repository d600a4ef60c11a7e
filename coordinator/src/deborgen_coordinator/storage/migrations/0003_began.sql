-- When the program of an attempt really began, by its worker's word.
ALTER TABLE attempt ADD COLUMN began_at {double};
-- An attempt that was given back, or that no heartbeat had confirmed, did not count for poison, and shall not now.
UPDATE attempt SET confirmed = 1 WHERE outcome = 'released';
