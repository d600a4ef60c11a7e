"""placeholder"""


class PodmanRunner: ...
