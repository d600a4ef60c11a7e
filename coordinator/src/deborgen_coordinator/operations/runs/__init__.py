"""Operations on runs: submit, retry, cancel, list and show them."""
