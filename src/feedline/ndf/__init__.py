"""The on-disk row format, usable alone: layout (pure), writer, reader."""
