"""What a type checker must refuse, one in each line that says so."""

import strongroom

strongroom.connect("a.db", key="a key")  # refused
strongroom.connect("a.db", key=lambda: 7)  # refused
strongroom.connect("a.db", keyid="app")  # refused
strongroom.connect("a.db", page_size="4096")  # refused
strongroom.encrypt("a", "b", key_command="x")  # refused
