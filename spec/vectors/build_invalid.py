def vectors(): return {}
