"""Host programs that record and replay through replaypack, and the file formats that are imported and exported."""
