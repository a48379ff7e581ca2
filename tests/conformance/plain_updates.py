"""Updates of optimizers in numpy; see plain_ops.py. A gradient in rows equals the dense gradient with these rows;
without any rows
nothing is updated, including moments."""
import numpy as np


def rate(op):
    return float(op["LearningRate"].ravel()[0])


def sgd(op):
    return {"ParamOut": op["Param"] - rate(op) * op.dense("Grad")}


def momentum(op):
    a, p, g = op.attrs, op["Param"], op.dense("Grad")
    if a.get("rescale_grad", 1.0) != 1.0 or op.has("MasterParam"):
        return None
    if a.get("regularization_method") == "l2_decay":
        g = g + a["regularization_coeff"] * p
    v = a["mu"] * op["Velocity"] + g
    return {"ParamOut": p - rate(op) * (g + a["mu"] * v if a["use_nesterov"] else v), "VelocityOut": v}


def adam(op):
    a, p, g = op.attrs, op["Param"], op.dense("Grad")
    if any(op.has(s) for s in ("MasterParam", "SkipUpdate", "Beta1Tensor", "Beta2Tensor", "EpsilonTensor")) or a.get("lazy_mode"):
        return None
    lr = rate(op)
    if a.get("with_decay"):  # as in the original, the ratio applies only to the decay
        p = p * (1 - lr * a.get("lr_ratio", 1.0) * a["coeff"])
    m, v = a["beta1"] * op["Moment1"] + (1 - a["beta1"]) * g, a["beta2"] * op["Moment2"] + (1 - a["beta2"]) * g * g
    b1, b2 = float(op["Beta1Pow"].ravel()[0]), float(op["Beta2Pow"].ravel()[0])
    if op.rows("Grad") is not None and not a.get("use_global_beta_pow"):
        # as in the original, powers are updated before the step, which sees the new values if they are updated in place
        b1, b2 = (b * a[f"beta{k}"] if op.outs.get(f"Beta{k}PowOut") == op.slots[f"Beta{k}Pow"] else b for k, b in ((1, b1), (2, b2)))
    step = lr * np.sqrt(1 - b2) / (1 - b1)
    return {"ParamOut": p - step * m / (np.sqrt(v) + a["epsilon"] * np.sqrt(1 - b2)), "Moment1Out": m, "Moment2Out": v}


def adamax(op):
    a, g = op.attrs, op.dense("Grad")
    m = a["beta1"] * op["Moment"] + (1 - a["beta1"]) * g
    norm = np.maximum(np.abs(g), a["beta2"] * op["InfNorm"] + a["epsilon"])
    return {"ParamOut": op["Param"] - rate(op) / (1 - float(op["Beta1Pow"].ravel()[0])) * m / norm, "MomentOut": m, "InfNormOut": norm}


def adagrad(op):
    g = op.dense("Grad")
    m = op["Moment"] + g * g
    return {"ParamOut": op["Param"] - rate(op) * g / (np.sqrt(m) + op.attrs["epsilon"]), "MomentOut": m}


def decayed_adagrad(op):
    a, g = op.attrs, op["Grad"]
    m = a["decay"] * op["Moment"] + (1 - a["decay"]) * g * g
    return {"ParamOut": op["Param"] - rate(op) * g / (np.sqrt(m) + a["epsilon"]), "MomentOut": m}


def rmsprop(op):
    a, g = op.attrs, op.dense("Grad")
    if op.rows("Grad") is not None:
        return None
    mean = a["decay"] * op["MeanSquare"] + (1 - a["decay"]) * g * g
    centre = a["decay"] * op["MeanGrad"] + (1 - a["decay"]) * g if a["centered"] else 0.0
    m = a["momentum"] * op["Moment"] + rate(op) * g / np.sqrt(mean - centre * centre + a["epsilon"])
    found = {"ParamOut": op["Param"] - m, "MomentOut": m, "MeanSquareOut": mean}
    return {**found, "MeanGradOut": centre} if a["centered"] else found


def adadelta(op):
    a, g = op.attrs, op["Grad"]
    squares = a["rho"] * op["AvgSquaredGrad"] + (1 - a["rho"]) * g * g
    step = -np.sqrt((op["AvgSquaredUpdate"] + a["epsilon"]) / (squares + a["epsilon"])) * g
    return {"AvgSquaredGradOut": squares, "AvgSquaredUpdateOut": a["rho"] * op["AvgSquaredUpdate"] + (1 - a["rho"]) * step * step}


def ftrl(op):
    a, g, p = op.attrs, op.dense("Grad"), op["Param"]
    if op.rows("Grad") is not None:
        return None
    l1, l2, power, old = a["l1"] + 1e-10, a["l2"] + 1e-10, a["lr_power"], op["SquaredAccumulator"]
    new = old + g * g
    linear = op["LinearAccumulator"] + g - (new ** -power - old ** -power) / rate(op) * p
    y = new ** -power / rate(op) + 2 * l2
    return {"ParamOut": np.where(np.abs(linear) > l1, (l1 * np.sign(linear) - linear) / y, 0.0), "SquaredAccumOut": new, "LinearAccumOut": linear}


def proximal_gd(op):
    a, lr = op.attrs, rate(op)
    p = op["Param"] - lr * op["Grad"]
    p = np.sign(p) * np.maximum(np.abs(p) - lr * a["l1"], 0) if a["l1"] > 0 else p
    return {"ParamOut": p / (1 + lr * a["l2"])}


def with_rows(update):
    return lambda op: None if op.rows("Grad") is not None and not op.rows("Grad")[0] else update(op)


UPDATES = {"sgd": sgd, "momentum": momentum, "adam": adam, "adamw": adam, "adamax": adamax, "adagrad": adagrad, "decayed_adagrad": decayed_adagrad,
       "rmsprop": rmsprop, "adadelta": adadelta, "ftrl": ftrl, "proximal_gd": proximal_gd}
OPS = {name: with_rows(update) for name, update in UPDATES.items()}
