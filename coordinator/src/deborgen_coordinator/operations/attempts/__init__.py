"""Operations on attempts: how they end, and what their programs write."""
