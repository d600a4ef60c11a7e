"""Operations on workers: what they ask for, and what people ask of them."""
