// What systems with one matrix share, as the kernels of src/cuda/lsq/nnls.cu prepare it.
#pragma once

#include <vector>

#include "core/lsq/job.hpp"

// A matrix of its own rows has the damping in its products; one with rows beneath has those apart.
template <class Matrix>
struct Prepared {
    Prepared(const Matrix& matrix, double damping)
        : numbers(5 * matrix.columns),
          columns(padded(matrix.rows) * matrix.columns),
          products(padded(matrix.columns) * matrix.columns),
          penalty_products(padded(matrix.columns) * matrix.columns),
          bounds(4 * matrix.columns + 4) {
        const int m = matrix.rows, n = matrix.columns, above = rows_of_a(matrix);
        const int64_t stride = padded(m), gram_stride = padded(n);
        double *scale = numbers.data(), *norm = scale + n, *inverse = norm + n;
        double *top_norm = inverse + n, *diagonal = top_norm + n;
        int32_t *low = bounds.data(), *high = low + n + 1, *top_low = high + n + 1,
                *top_high = top_low + n + 1;
        for (int j = 0; j < n; ++j) {
            double square = 0;
            low[j] = high[j] = 0;
            for (int i = 0; i < above; ++i) {
                const double a = matrix.entry(i, j);
                square += a * a;
                if (a == 0) continue;
                if (high[j] == 0) low[j] = i;
                high[j] = i + 1;
            }
            top_low[j] = low[j];
            top_high[j] = high[j];
            describe(matrix, j, square, damping, scale[j], norm[j], diagonal[j], low[j], high[j]);
            top_norm[j] = norm[j];
            inverse[j] = norm[j] > 0 ? 1 / norm[j] : 0;
            for (int i = 0; i < m; ++i) columns[j * stride + i] = scale[j] * matrix.entry(i, j);
        }
        for (int i = 0; i < n; ++i)
            for (int j = 0; j < n; ++j) {
                double &sum = products[i * gram_stride + j], &beneath = penalty_products[i * gram_stride + j];
                for (int t = 0; t < above; ++t) sum += columns[i * stride + t] * columns[j * stride + t];
                for (int t = penalty_from(matrix); t < m; ++t)
                    beneath += columns[i * stride + t] * columns[j * stride + t];
                if (i == j) sum += damping * scale[j] * damping * scale[j];
            }
        shared.scale = scale;
        shared.columns = columns.data();
        shared.low = low;
        shared.high = high;
        shared.gram = products.data();
        shared.envelope = {top_low, top_high};
        shared.column_stride = stride;
        shared.gram_stride = gram_stride;
        shared.top_norm = top_norm;
        shared.penalty_diagonal = diagonal;
        if (!has_metric(matrix)) {
            shared.norm = norm;
            shared.inverse_norm = inverse;
        }
        if (has_penalty(matrix)) shared.penalty_gram = penalty_products.data();
    }
    Prepared(const Prepared&) = delete;
    std::vector<double> numbers, columns, products, penalty_products;
    std::vector<int32_t> bounds;
    Shared shared;

private:
    template <class T>
    static int rows_of_a(const T& matrix) {
        return matrix.rows;
    }
    template <class T>
    static int rows_of_a(const Stacked<T>& matrix) {
        return matrix.top.rows;
    }
    template <class T>
    static int penalty_from(const T& matrix) {
        return matrix.rows;
    }
    template <class T>
    static int penalty_from(const Stacked<T>& matrix) {
        return matrix.below + matrix.summed;
    }
    template <class T>
    static bool has_metric(const T&) {
        return false;
    }
    template <class T>
    static bool has_metric(const Stacked<T>& matrix) {
        return matrix.rows_beneath() > 0;
    }
    template <class T>
    static bool has_penalty(const T&) {
        return false;
    }
    template <class T>
    static bool has_penalty(const Stacked<T>& matrix) {
        return matrix.penalty != nullptr;
    }
    template <class T>
    static void describe(const T& matrix, int j, double square, double damping, double& scale, double& norm,
                         double& diagonal, int32_t&, int32_t&) {
        diagonal = 0;
        scale_column(matrix, j, square, damping, scale, norm);
    }
    template <class T>
    static void describe(const Stacked<T>& matrix, int j, double square, double, double& scale, double& norm,
                         double& diagonal, int32_t& low, int32_t& high) {
        scale_stacked(matrix, j, square, scale, norm);
        diagonal = square_in_penalty(matrix, j, scale);
        if (matrix.rows_beneath() == 0) return;
        low = 0;
        high = matrix.rows;
    }
};
