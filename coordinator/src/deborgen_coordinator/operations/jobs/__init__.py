"""Operations on jobs: look at them, and explain why they are queued or how they ended."""
