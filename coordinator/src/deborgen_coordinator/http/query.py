"""Types of query parameters that several routes share."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from deborgen_shared.messages import END

StateName = Literal["queued", "running", "succeeded", "failed", "canceled"]
Limit = Annotated[int, Meta(ge=1, le=1000)]
Cursor = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:=-]{1,200}" + END, max_length=200)]
#: `project` or `project=thesis`
Label = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}(=[^\n]{0,200})?" + END, max_length=264)]
RunNumber = Annotated[int, Meta(ge=1, lt=10**12)]
JobName = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,11}\.[1-9][0-9]{0,8}" + END, max_length=22)]
Sequence = Annotated[int, Meta(ge=0, lt=2**53)]
