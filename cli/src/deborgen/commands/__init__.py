"""The verbs of `deborgen`, one file each. A file is imported only when its verb is used."""
