"""Operations on runs: submit, retry and cancel them, and look at them."""
