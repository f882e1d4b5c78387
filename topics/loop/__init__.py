"""Operations in flight, timers, tasks, listeners, connections and files over a Ring."""
