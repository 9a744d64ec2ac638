"""Linear and integer programs: solvers, their answers, and bounds that are safe."""
