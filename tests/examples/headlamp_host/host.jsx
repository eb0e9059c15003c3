// A minimal Headlamp: the real libraries that it gives to plugins, its store, and the routes of one plugin.
import '@kinvolk/headlamp-plugin/lib/plugin/index';
import { lightTheme } from '@kinvolk/headlamp-plugin/lib/components/App/defaultAppThemes';
import { createMuiTheme } from '@kinvolk/headlamp-plugin/lib/lib/themes';
import store from '@kinvolk/headlamp-plugin/lib/redux/stores/store';
import { ThemeProvider } from '@mui/material/styles';
import React from 'react';
import { createRoot } from 'react-dom/client';
import { Provider } from 'react-redux';
import { BrowserRouter, Link, Route } from 'react-router-dom';

const theme = createMuiTheme(lightTheme);

function Host() {
  const { routes, sidebar } = store.getState();
  const entries = Object.values(sidebar.entries);
  const names = ['main', 'other'];
  return (
    <React.Suspense fallback="">
      <ThemeProvider theme={theme}>
        <Provider store={store}>
          <BrowserRouter>
            <nav>
              {names.flatMap(cluster =>
                entries.map(one => (
                  <Link key={cluster + one.url} to={`/c/${cluster}${one.url}`}>
                    {cluster}: {one.label}
                  </Link>
                ))
              )}
            </nav>
            {Object.values(routes.routes).map(one => (
              <Route key={one.path} path={`/c/:cluster${one.path}`} exact={one.exact} component={one.component} />
            ))}
          </BrowserRouter>
        </Provider>
      </ThemeProvider>
    </React.Suspense>
  );
}

const plugin = document.createElement('script');
plugin.src = '/plugin.js';
plugin.onload = () => createRoot(document.getElementById('root')).render(<Host />);
document.head.append(plugin);
