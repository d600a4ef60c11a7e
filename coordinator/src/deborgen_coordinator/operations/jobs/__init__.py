"""Operations on jobs: look at them, and ask why they wait."""
