"""The verbs of `deborgen`, one file each. A file is imported when its verb is called."""
