"""Writing a recording: recipes, segments, tables, the journal and publication. Private; the writer's policy."""
