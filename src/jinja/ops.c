/* Operators between values, as Python has them, with ints of 64 bits. */
#include "jinja/ops.h"

#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "jinja/jinja.h"

static uint16_t either(val a, val b) {
    uint16_t m = mark_of(a);
    return m ? m : mark_of(b);
}

static _Noreturn void unsupported(struct run *x, const char *op, val a, val b) {
    need_defined(x, a);
    need_defined(x, b);
    jx_fail(x, "unsupported operand type(s) for %s: '%s' and '%s'", op, type_name(a), type_name(b));
}

static _Noreturn void too_large(struct run *x) { jx_fail_limit(x, "digits of an integer"); }

static double as_float(val v) { return v.type == V_FLOAT ? v.f : (double)v.i; }

static val op_add(struct run *x, val a, val b) {
    if (is_integer(a) && is_integer(b)) {
        val v = v_int(0);
        if (__builtin_add_overflow(a.i, b.i, &v.i)) too_large(x);
        return v;
    }
    if (is_number(a) && is_number(b)) return v_float(as_float(a) + as_float(b));
    if (is_str(a) && is_str(b)) {
        if (!a.s->markup && !b.s->markup) return v_concat(x, a, b);
        return v_markup(x, v_concat(x, escape_html(x, a), escape_html(x, b)), 1);
    }
    if (is_sequence(a) && a.type == b.type) {
        struct list *l = list_new(x, a.l->n + b.l->n);
        for (uint32_t i = 0; i < a.l->n; i++) list_add(x, l, a.l->v[i]);
        for (uint32_t i = 0; i < b.l->n; i++) list_add(x, l, b.l->v[i]);
        jx_steps(x, l->n / 4);
        return v_list(l, a.type);
    }
    unsupported(x, "+", a, b);
}

static val op_sub(struct run *x, val a, val b) {
    if (is_integer(a) && is_integer(b)) {
        val v = v_int(0);
        if (__builtin_sub_overflow(a.i, b.i, &v.i)) too_large(x);
        return v;
    }
    if (is_number(a) && is_number(b)) return v_float(as_float(a) - as_float(b));
    unsupported(x, "-", a, b);
}

static val repeat(struct run *x, val v, int64_t times) {
    if (times < 0) times = 0;
    if (is_str(v)) {
        struct maker m = maker_begin(x);
        maker_repeat(&m, v.s, times);
        return v_markup(x, maker_end(&m), v.s->markup);
    }
    int64_t n;
    if (__builtin_mul_overflow((int64_t)v.l->n, times, &n) || n > JINJA_MEMORY_MAX / (int64_t)sizeof(val))
        jx_fail_limit(x, "memory");
    jx_steps(x, (uint64_t)n);
    struct list *l = list_new(x, (uint32_t)n);
    for (int64_t i = 0; v.l->n && i < times; i++)
        for (uint32_t k = 0; k < v.l->n; k++) list_add(x, l, v.l->v[k]);
    return v_list(l, v.type);
}

static val op_mul(struct run *x, val a, val b) {
    if (is_integer(a) && is_integer(b)) {
        val v = v_int(0);
        if (__builtin_mul_overflow(a.i, b.i, &v.i)) too_large(x);
        return v;
    }
    if (is_number(a) && is_number(b)) return v_float(as_float(a) * as_float(b));
    if ((is_str(a) || is_sequence(a)) && is_integer(b)) return repeat(x, a, b.i);
    if ((is_str(b) || is_sequence(b)) && is_integer(a)) return repeat(x, b, a.i);
    unsupported(x, "*", a, b);
}

static val op_div(struct run *x, val a, val b) {
    if (!is_number(a) || !is_number(b)) unsupported(x, "/", a, b);
    if (as_float(b) == 0) jx_fail(x, "division by zero");
    return v_float(as_float(a) / as_float(b));
}

static double float_mod(double a, double b) {
    double r = fmod(a, b);
    if (r != 0 ? (b < 0) != (r < 0) : 0) r += b;
    return r != 0 ? r : copysign(0, b);
}

static double float_floor_div(double a, double b) {
    double r = fmod(a, b), q = (a - r) / b;
    if (r != 0 && (b < 0) != (r < 0)) q -= 1;
    if (q == 0) return copysign(0, a / b);
    double whole = floor(q);
    return q - whole > 0.5 ? whole + 1 : whole;
}

static val op_floor_div(struct run *x, val a, val b, int mod) {
    if (!is_number(a) || !is_number(b)) unsupported(x, mod ? "%" : "//", a, b);
    if (as_float(b) == 0) jx_fail(x, "integer division or modulo by zero");
    if (!is_integer(a) || !is_integer(b))
        return v_float(mod ? float_mod(as_float(a), as_float(b)) : float_floor_div(as_float(a), as_float(b)));
    if (b.i == -1) return mod ? v_int(0) : op_mul(x, a, b);
    int64_t q = a.i / b.i, r = a.i % b.i;
    if (r && (r < 0) != (b.i < 0)) {
        q--;
        r += b.i;
    }
    return v_int(mod ? r : q);
}

static double float_pow(struct run *x, double a, double b) {
    if (b == 0 || a == 1) return 1;
    if (a == 0) {
        if (b < 0) jx_fail(x, "0.0 cannot be raised to a negative power");
        return 0;
    }
    if (b == floor(b) && fabs(b) <= 4096) {
        long double r = 1, base = a;
        for (int64_t n = (int64_t)fabs(b); n; n >>= 1, base *= base)
            if (n & 1) r *= base;
        double f = (double)(b < 0 ? 1 / r : r);
        if (isinf(f) && !isinf(a)) jx_fail(x, "numerical result out of range");
        return f;
    }
    if (a < 0) jx_fail(x, "a negative number cannot be raised to a fractional power");
    double e = b * fmath_log(a);
    if (e > 709.7) jx_fail(x, "numerical result out of range");
    return e < -745 ? 0 : b == 0.5 ? sqrt(a) : fmath_pow(a, b);
}

static val op_pow(struct run *x, val a, val b) {
    if (!is_number(a) || !is_number(b)) unsupported(x, "** or pow()", a, b);
    if (!is_integer(a) || !is_integer(b) || b.i < 0) return v_float(float_pow(x, as_float(a), as_float(b)));
    int64_t r = 1, base = a.i;
    for (int64_t n = b.i; n; n >>= 1) {
        if (n & 1 && __builtin_mul_overflow(r, base, &r)) too_large(x);
        if (n > 1 && __builtin_mul_overflow(base, base, &base)) too_large(x);
    }
    return v_int(r);
}

int op_compare(struct run *x, enum op op, val a, val b) {
    int r;
    switch (op) {
    case OP_EQ:
        return equal(x, a, b);
    case OP_NE:
        return !equal(x, a, b);
    case OP_LT:
        return compare(x, a, b, "<") == -1;
    case OP_LE:
        return (r = compare(x, a, b, "<=")) == -1 || r == 0;
    case OP_GT:
        return compare(x, a, b, ">") == 1;
    case OP_GE:
        return (r = compare(x, a, b, ">=")) == 1 || r == 0;
    case OP_IN:
        return contains(x, b, a);
    default:
        return !contains(x, b, a);
    }
}

val op_binary(struct run *x, enum op op, val a, val b) {
    val v;
    switch (op) {
    case OP_ADD:
        v = op_add(x, a, b);
        break;
    case OP_SUB:
        v = op_sub(x, a, b);
        break;
    case OP_MUL:
        v = op_mul(x, a, b);
        break;
    case OP_DIV:
        v = op_div(x, a, b);
        break;
    case OP_FLOORDIV:
        v = op_floor_div(x, a, b, 0);
        break;
    case OP_MOD:
        /* A string's own % comes first, unless the right side is undefined alone. */
        if (is_str(a)) return format_percent(x, a, b);
        v = op_floor_div(x, a, b, 1);
        break;
    case OP_POW:
        v = op_pow(x, a, b);
        break;
    default:
        return v_bool(op_compare(x, op, a, b));
    }
    if (v.type == V_INT || v.type == V_FLOAT) v.mark = either(a, b);
    return v;
}

val op_negate(struct run *x, val a, int positive) {
    need_defined(x, a);
    if (!is_number(a)) jx_fail(x, "bad operand type for unary %c: '%s'", positive ? '+' : '-', type_name(a));
    val v = a;
    if (a.type == V_BOOL) v = v_int(a.i);
    if (!positive && v.type == V_FLOAT) v.f = -v.f;
    if (!positive && v.type == V_INT && __builtin_sub_overflow(0, v.i, &v.i)) too_large(x);
    v.mark = a.mark;
    return v;
}
