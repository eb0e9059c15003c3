export default {
  define: { global: 'globalThis', 'process.env': {} },
  build: {
    minify: false,
    modulePreload: false,
    outDir: 'dist',
    rollupOptions: {
      input: 'host.jsx',
      onwarn: () => {},
      output: { entryFileNames: 'host.js', inlineDynamicImports: true },
    },
    target: 'esnext',
  },
};
