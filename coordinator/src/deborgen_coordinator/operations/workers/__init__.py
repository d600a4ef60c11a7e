"""Operations of workers, such as claim and finish, and of people on workers, such as steer."""
