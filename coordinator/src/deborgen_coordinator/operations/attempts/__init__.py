"""Operations on attempts: their outcomes, logs, artifacts and program events."""
