// Arrays through standard input and output, byte by byte: how the tests talk to the programs here.
#pragma once

#include <cstdio>
#include <cstdlib>

template <class T>
void receive(T* values, size_t count) {
    if (std::fread(values, sizeof(T), count, stdin) != count) std::exit(2);
}

template <class T>
void send(const T* values, size_t count) {
    std::fwrite(values, sizeof(T), count, stdout);
}
