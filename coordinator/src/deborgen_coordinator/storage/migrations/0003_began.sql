-- When the program of an attempt really began, by its worker's word.
ALTER TABLE attempt ADD COLUMN began_at {double};
