"""Random arguments for every public verb, by number: the right answer or an ObrsError, never a crash, hang or NaN.

A case is a function of a `Maker`: it makes arguments by chance, calls a public function and checks what must hold of
any answer. The verb and the number decide everything, so that a fault can be seen again; only without JAX its few
arrays are of NumPy:

    cd tests && python -m adversary --cases 100000
    cd tests && python -m adversary --verb rollout --case 1234
"""
