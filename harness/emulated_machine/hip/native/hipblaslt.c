/* hipBLASLt's matrix product, as far as Triton's amd.hipblas calls it: float16, bfloat16 and float32, computed in
 * float32 on the CPU. Other types get no algorithm, and other attributes HIPBLAS_STATUS_NOT_SUPPORTED, both with a line on
 * stderr. harness.emulated_machine.hip.calls has the table of the calls. */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, ALLOC_FAILED = 2, INVALID_VALUE = 3, NOT_SUPPORTED = 7 };
enum { R_32F = 0, R_16F = 2, R_16BF = 14 };
enum { OP_N = 111, OP_T = 112, OP_C = 113 };
enum { DESC_TRANSA = 0, DESC_TRANSB = 1, LANES = 16 };

enum kind { HANDLE, PREFERENCE, PRODUCT, LAYOUT };

/* A handle of a program, valid while it is in the list. */
struct object { struct object *next; enum kind kind; };
struct product { struct object object; int transpose[2]; };
struct layout { struct object object; int type; uint64_t rows, columns; int64_t stride; };
struct heuristic { uint64_t algorithm[17]; size_t workspace; int state; float waves; };

static float bits_to_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t float_to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 0x3ff;
    if (exponent == 31)
        return bits_to_float(sign | 0x7f800000 | fraction << 13);
    if (exponent)
        return bits_to_float(sign | (exponent + 112) << 23 | fraction << 13);
    return (sign ? -0x1p-24f : 0x1p-24f) * (float)fraction;
}

static uint16_t float_to_half(float value)
{
    uint32_t bits = float_to_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return sign | 0x7e00;
    if (magnitude >= 0x477ff000) /* 65520 rounds to infinity */
        return sign | 0x7c00;
    if (magnitude < 0x38800000) /* a subnormal: the sum with 0.5 is rounded to a multiple of 2^-24 */
        return sign | (float_to_bits(bits_to_float(magnitude) + 0.5f) - float_to_bits(0.5f));
    magnitude += 0xfff + (magnitude >> 13 & 1);
    return sign | (magnitude - (112u << 23)) >> 13;
}

static float load(const void *data, int type, uint64_t index)
{
    if (type == R_32F)
        return ((const float *)data)[index];
    uint16_t raw = ((const uint16_t *)data)[index];
    return type == R_16F ? half_to_float(raw) : bits_to_float((uint32_t)raw << 16);
}

static void store(void *data, int type, uint64_t index, float value)
{
    uint32_t bits = float_to_bits(value);
    if (type == R_32F)
        ((float *)data)[index] = value;
    else if (type == R_16F)
        ((uint16_t *)data)[index] = float_to_half(value);
    else
        ((uint16_t *)data)[index] =
            (bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static int supported(int type)
{
    return type == R_32F || type == R_16F || type == R_16BF;
}

/* Return `outer` vectors of `inner` elements, each padded with zeros to whole lanes; NULL without memory. */
static float *pack(const void *data, const struct layout *layout, int along_rows, uint64_t outer, uint64_t inner)
{
    uint64_t padded = (inner + LANES - 1) / LANES * LANES;
    float *packed = calloc(outer * padded + 1, sizeof *packed);
    for (uint64_t i = 0; packed && i < outer; i++)
        for (uint64_t k = 0; k < inner; k++) {
            uint64_t row = along_rows ? k : i, column = along_rows ? i : k;
            packed[i * padded + k] = load(data, layout->type, row + column * layout->stride);
        }
    return packed;
}

static float dot(const float *a, const float *b, uint64_t padded)
{
    float sums[LANES] = {0}, total = 0;
    for (uint64_t k = 0; k < padded; k += LANES)
        for (int lane = 0; lane < LANES; lane++)
            sums[lane] += a[k + lane] * b[k + lane];
    for (int lane = 0; lane < LANES; lane++)
        total += sums[lane];
    return total;
}

static struct object *objects;

static struct object **find_object(const void *object, enum kind kind)
{
    struct object **each = &objects;
    while (*each && *each != object)
        each = &(*each)->next;
    return *each && (*each)->kind == kind ? each : NULL;
}

static bool valid(const void *object, enum kind kind)
{
    LOCK();
    bool found = find_object(object, kind);
    UNLOCK();
    return found;
}

static int create(void **out, enum kind kind, size_t size)
{
    if (!writable(out, sizeof *out))
        return INVALID_VALUE;
    struct object *object = calloc(1, size);
    if (!object)
        return ALLOC_FAILED;
    object->kind = kind;
    LOCK();
    object->next = objects, objects = object;
    UNLOCK();
    *out = object;
    return SUCCESS;
}

static int destroy(void *object, enum kind kind)
{
    LOCK();
    struct object **place = find_object(object, kind);
    if (place)
        *place = (*place)->next;
    UNLOCK();
    if (!place)
        return INVALID_VALUE;
    free(object);
    return SUCCESS;
}

static int refuse(const char *call, const char *part, long long value)
{
    fprintf(stderr, "iris-harness emulate: %s: %s %lld is not available on the emulated machine; "
                    FACTS_PAGE " lists what is\n", call, part, value);
    return NOT_SUPPORTED;
}

EXPORT int hipblasLtCreate(void **handle) { return create(handle, HANDLE, sizeof(struct object)); }
EXPORT int hipblasLtDestroy(void *handle) { return destroy(handle, HANDLE); }
EXPORT int hipblasLtMatmulPreferenceCreate(void **out) { return create(out, PREFERENCE, sizeof(struct object)); }
EXPORT int hipblasLtMatmulPreferenceDestroy(void *preference) { return destroy(preference, PREFERENCE); }
EXPORT int hipblasLtMatmulDescDestroy(void *product) { return destroy(product, PRODUCT); }
EXPORT int hipblasLtMatrixLayoutDestroy(void *layout) { return destroy(layout, LAYOUT); }

EXPORT int hipblasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *value, size_t size)
{
    (void)attribute, (void)size; /* no algorithm here needs a workspace: any limit is kept */
    return valid(preference, PREFERENCE) && value ? SUCCESS : INVALID_VALUE;
}

EXPORT int hipblasLtMatmulDescCreate(struct product **product, int compute_type, int scale_type)
{
    (void)compute_type; /* float32 is at least as exact as each type that a program can request */
    if (scale_type != R_32F)
        return refuse("hipblasLtMatmulDescCreate", "scale type", scale_type);
    int status = create((void **)product, PRODUCT, sizeof **product);
    if (status == SUCCESS)
        (*product)->transpose[0] = (*product)->transpose[1] = OP_N;
    return status;
}

EXPORT int hipblasLtMatmulDescSetAttribute(struct product *product, int attribute, const void *value, size_t size)
{
    int32_t operation;
    if (!valid(product, PRODUCT) || !value)
        return INVALID_VALUE;
    if (attribute != DESC_TRANSA && attribute != DESC_TRANSB)
        return refuse("hipblasLtMatmulDescSetAttribute", "attribute", attribute);
    if (!readable(value, sizeof operation) || size != sizeof operation)
        return INVALID_VALUE;
    memcpy(&operation, value, sizeof operation);
    if (operation < OP_N || operation > OP_C)
        return INVALID_VALUE;
    product->transpose[attribute] = operation;
    return SUCCESS;
}

EXPORT int hipblasLtMatrixLayoutCreate(struct layout **layout, int type, uint64_t rows, uint64_t columns, int64_t stride)
{
    if (stride < 0 || (uint64_t)stride < rows)
        return INVALID_VALUE;
    int status = create((void **)layout, LAYOUT, sizeof **layout);
    if (status == SUCCESS)
        (*layout)->type = type, (*layout)->rows = rows, (*layout)->columns = columns, (*layout)->stride = stride;
    return status;
}

static bool valid_layouts(const struct layout *const layouts[4])
{
    for (int i = 0; i < 4; i++)
        if (!valid(layouts[i], LAYOUT))
            return false;
    return true;
}

/* Return SUCCESS, or NOT_SUPPORTED with a line on stderr that names the first other type. */
static int check_types(const char *call, const struct layout *const layouts[4])
{
    for (int i = 0; i < 4; i++)
        if (!supported(layouts[i]->type))
            return refuse(call, "a matrix of type", layouts[i]->type);
    return SUCCESS;
}

/* Return whether every element of a matrix can be loaded, or stored. */
static bool reachable(const void *data, const struct layout *layout, bool store)
{
    size_t elements, bytes;
    if (!layout->rows || !layout->columns)
        return true;
    bool overflow = __builtin_mul_overflow(layout->columns - 1, (size_t)layout->stride, &elements) ||
                    __builtin_add_overflow(elements, layout->rows, &elements) ||
                    __builtin_mul_overflow(elements, layout->type == R_32F ? 4 : 2, &bytes);
    return !overflow && (store ? writable(data, bytes) : readable(data, bytes));
}

EXPORT int hipblasLtMatmulAlgoGetHeuristic(
    void *handle, struct product *product, struct layout *a, struct layout *b, struct layout *c, struct layout *d,
    void *preference, int requested, struct heuristic *results, int *returned)
{
    const struct layout *const layouts[] = {a, b, c, d};
    if (!valid(handle, HANDLE) || !valid(product, PRODUCT) || !valid_layouts(layouts) || !valid(preference, PREFERENCE) ||
        requested < 1 || !writable(results, sizeof *results) || !writable(returned, sizeof *returned))
        return INVALID_VALUE;
    int status = check_types("hipblasLtMatmulAlgoGetHeuristic", layouts);
    memset(results, 0, sizeof *results);
    *returned = status == SUCCESS;
    return status;
}

EXPORT int hipblasLtMatmul(
    void *handle, struct product *product, const float *alpha, const void *a, const struct layout *a_layout,
    const void *b, const struct layout *b_layout, const float *beta, const void *c, const struct layout *c_layout,
    void *d, const struct layout *d_layout, const void *algorithm, void *workspace, size_t workspace_size, void *stream)
{
    (void)algorithm, (void)workspace, (void)workspace_size, (void)stream;
    const struct layout *const layouts[] = {a_layout, b_layout, c_layout, d_layout};
    if (!valid(handle, HANDLE) || !valid(product, PRODUCT) || !valid_layouts(layouts) ||
        !readable(alpha, sizeof *alpha) || !readable(beta, sizeof *beta))
        return INVALID_VALUE;
    int supported_types = check_types("hipblasLtMatmul", layouts);
    if (supported_types != SUCCESS)
        return supported_types;
    int a_along_rows = product->transpose[0] != OP_N, b_along_rows = product->transpose[1] == OP_N;
    uint64_t m = a_along_rows ? a_layout->columns : a_layout->rows, n = b_along_rows ? b_layout->columns : b_layout->rows;
    uint64_t inner = a_along_rows ? a_layout->rows : a_layout->columns;
    uint64_t padded = (inner + LANES - 1) / LANES * LANES;
    if (inner != (b_along_rows ? b_layout->rows : b_layout->columns) || d_layout->rows != m || d_layout->columns != n
        || c_layout->rows != m || c_layout->columns != n)
        return INVALID_VALUE;
    if (!reachable(a, a_layout, false) || !reachable(b, b_layout, false) || !reachable(d, d_layout, true) ||
        (*beta != 0 && !reachable(c, c_layout, false)))
        return INVALID_VALUE;
    float *left = pack(a, a_layout, a_along_rows, m, inner), *right = pack(b, b_layout, b_along_rows, n, inner);
    for (uint64_t column = 0; left && right && column < n; column++)
        for (uint64_t row = 0; row < m; row++) {
            float value = *alpha * dot(left + row * padded, right + column * padded, padded);
            if (*beta != 0)
                value += *beta * load(c, c_layout->type, row + column * c_layout->stride);
            store(d, d_layout->type, row + column * d_layout->stride, value);
        }
    int status = left && right ? SUCCESS : ALLOC_FAILED;
    free(left);
    free(right);
    return status;
}
